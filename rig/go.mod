module github.com/nagelfluh/nagelfluh/rig

go 1.26.0
