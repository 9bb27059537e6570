module github.com/nagelfluh/nagelfluh/migrations

go 1.26.0
