import os

config.hp_build = os.path.dirname(os.path.dirname(__file__))
config.hp_source = os.environ["HP_SOURCE"]
config.hp_asan = False
config.hp_unittests = ["Works", "Dies", "Empty", "Unlisted", "Missing"]

lit_config.load_config(config, config.hp_source + "/unittests/lit.cfg.py")
