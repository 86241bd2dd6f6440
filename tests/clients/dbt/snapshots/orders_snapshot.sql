{% snapshot orders_snapshot %}
{{ config(target_schema='dbt_matrix', unique_key='id', strategy='check', check_cols=['amount', 'note']) }}
select id, amount, note from {{ ref('raw_orders') }}
{% endsnapshot %}
