"""SQL Server, and engines that speak TDS, through pyodbc and an ODBC driver."""
