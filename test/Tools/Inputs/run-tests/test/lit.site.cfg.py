import lit.formats

config.name = "small"
config.test_format = lit.formats.ShTest()
config.suffixes = [".test"]
config.test_source_root = config.test_exec_root = __file__.rsplit("/", 1)[0]
