package app

import (
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/config"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

func startLimits(c *config.Config) map[string]time.Duration {
	return map[string]time.Duration{
		process.LimitImagePull: c.StartImagePull, process.LimitContainerConfig: c.StartContainerConfig,
		process.LimitPodsRefused: c.StartPodsRefused, process.LimitUnschedulable: c.StartUnschedulable,
		process.LimitQueue: c.StartQueue,
	}
}
