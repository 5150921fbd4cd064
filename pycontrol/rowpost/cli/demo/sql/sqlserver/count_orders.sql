-- Rows, and messages behind them: equal where each was handled exactly once. Then those of the burst alone.
SELECT
    COUNT(*),
    COUNT(DISTINCT o.message_row),
    COUNT(CASE WHEN o.order_number BETWEEN 100001 AND 100000000 THEN 1 END),
    COUNT(DISTINCT CASE WHEN o.order_number BETWEEN 100001 AND 100000000 THEN o.order_number END)
FROM demo_order AS o;
