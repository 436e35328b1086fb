from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0001_to_0019")]

    operations = [
        migrations.CreateModel(
            name="ChosenSetting",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.TextField(unique=True)),
                ("value", models.JSONField()),
            ],
        ),
    ]
