SET NOCOUNT ON; INSERT INTO demo_order (message_row, message_type, order_number, amount, worker) VALUES (?, ?, ?, ?, ?);
