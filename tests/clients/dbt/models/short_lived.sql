{{ config(materialized='ephemeral') }}
select customer, total from {{ ref('customers') }} where total > 0
