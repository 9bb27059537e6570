module github.com/nagelfluh/nagelfluh/e2e

go 1.26.0

require (
	github.com/nagelfluh/nagelfluh/rig v0.0.0
	go.uber.org/goleak v1.3.0 // indirect
	k8s.io/api v0.37.2 // indirect
	k8s.io/apimachinery v0.37.2 // indirect
	k8s.io/client-go v0.37.2 // indirect
)

replace github.com/nagelfluh/nagelfluh/rig => ../rig
