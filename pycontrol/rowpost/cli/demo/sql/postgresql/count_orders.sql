-- Rows, and messages behind them: equal where each was handled exactly once. Then those of the burst alone.
SELECT
    count(*),
    count(DISTINCT o.message_row),
    count(*) FILTER (WHERE o.order_number BETWEEN 100001 AND 100000000),
    count(DISTINCT o.order_number) FILTER (WHERE o.order_number BETWEEN 100001 AND 100000000)
FROM demo_order AS o;
