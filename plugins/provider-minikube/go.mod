module github.com/nagelfluh/nagelfluh/plugins/provider-minikube

go 1.26.0

require github.com/nagelfluh/nagelfluh/sdk v0.0.0

replace github.com/nagelfluh/nagelfluh/sdk => ../../sdk
