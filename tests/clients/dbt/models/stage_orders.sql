{{ config(materialized='view') }}
select id, customer, day, cast(coalesce(amount, 0) as numeric(10,2)) as amount, note from {{ ref('raw_orders') }}
