{{ config(materialized='table') }}
select customer from {{ ref('short_lived') }} order by total desc limit 1
