package procnode

import (
	"strings"
	"time"
)

// testRegistry is the host of image names that mean something here.
const testRegistry = "nagelfluh.test/"

// image is what a container's image does to it. Most do nothing: process nodes
// have no images.
type image struct {
	neverPulled bool
	invalidName bool
	oom         bool
	pullTime    time.Duration
}

func parseImage(name string) image {
	rest, isTest := strings.CutPrefix(name, testRegistry)
	if !isTest {
		return image{}
	}
	repository, tag, _ := strings.Cut(rest, ":")
	switch {
	case repository == "never-pulled":
		return image{neverPulled: true}
	case strings.HasPrefix(repository, "invalid-name"):
		return image{invalidName: true}
	case repository == "oom":
		return image{oom: true}
	case repository == "slow-pull":
		pullTime, err := time.ParseDuration(tag)
		if err != nil {
			pullTime = 5 * time.Second
		}
		return image{pullTime: pullTime}
	}
	return image{}
}
