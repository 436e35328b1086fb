from django.db import migrations
from django.db.models.functions import Now


def mark_earlier_plans(apps, schema_editor):
    """Nobody knows which of the plans that users started were looked at: none of them is announced now."""
    del schema_editor
    apps.get_model("compaction_app", "Run").objects.filter(automatic=False, reviewed_at=None).update(reviewed_at=Now())


class Migration(migrations.Migration):
    dependencies = [("compaction_app", "0027_origins_of_forks")]

    operations = [migrations.RunPython(mark_earlier_plans, migrations.RunPython.noop)]
