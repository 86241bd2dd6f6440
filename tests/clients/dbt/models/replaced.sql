{{ config(materialized='incremental', unique_key='customer', incremental_strategy='delete+insert') }}
select customer, max(day) as last_day from {{ ref('stage_orders') }} group by customer
