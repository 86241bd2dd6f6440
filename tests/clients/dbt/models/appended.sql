{{ config(materialized='incremental') }}
select id, amount from {{ ref('stage_orders') }}
{% if is_incremental() %} where id > (select max(id) from {{ this }}) {% endif %}
