"""A column that is added, changed, filled, renamed and dropped again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]

    operations = [
        migrations.AddField("Shop", "city", models.CharField(max_length=40, default="Berlin")),
        migrations.AlterField("Shop", "city", models.CharField(max_length=80, null=True)),
        migrations.RenameField("Shop", "city", "town"),
        migrations.RunSQL("UPDATE shop_shop SET town = 'Paris'", migrations.RunSQL.noop),
        migrations.RemoveField("Shop", "town"),
    ]
