from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compaction_app", "0029_lab_app")]

    operations = [
        migrations.AddField(model_name="run", name="dismissed_at", field=models.DateTimeField(null=True)),
    ]
