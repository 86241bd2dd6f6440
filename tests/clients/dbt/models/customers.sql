{{ config(materialized='table') }}
select customer, count(*) as orders, sum(amount) as total, min(day) as first_day from {{ ref('stage_orders') }} group by customer
