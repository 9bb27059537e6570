module github.com/nagelfluh/nagelfluh/plugins/selector-gpu

go 1.26.0

require github.com/nagelfluh/nagelfluh/sdk v0.0.0

replace github.com/nagelfluh/nagelfluh/sdk => ../../sdk
