module github.com/nagelfluh/nagelfluh/e2e

go 1.26.0
