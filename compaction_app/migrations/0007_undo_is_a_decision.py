from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def forget_undone(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """What was undone has no effect; without its flag it would have one."""
    apps.get_model('compaction_app', 'Decision').objects.filter(undone=True).delete()


class Migration(migrations.Migration):

    dependencies = [
        ('compaction_app', '0006_heartbeats'),
    ]

    operations = [
        migrations.RunPython(forget_undone, migrations.RunPython.noop),
        migrations.RemoveField(
            model_name='decision',
            name='undone',
        ),
        migrations.AlterField(
            model_name='decision',
            name='kind',
            field=models.CharField(choices=[('approve', 'approve'), ('reject', 'reject'), ('reopen', 'reopen'), ('narrow', 'narrow'), ('add', 'add'), ('withdraw', 'withdraw'), ('undo', 'undo')], max_length=10),
        ),
    ]
