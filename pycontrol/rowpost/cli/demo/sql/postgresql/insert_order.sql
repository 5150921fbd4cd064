INSERT INTO demo_order (message_row, message_type, order_number, amount, worker) VALUES (%s, %s, %s, %s, %s)
