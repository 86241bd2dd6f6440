{{ config(materialized='view') }}
select id, customer, day, coalesce(amount, 0) as amount, note from {{ ref('raw_orders') }}
