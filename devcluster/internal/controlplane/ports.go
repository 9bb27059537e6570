package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports come from below the range from which systems take the ports of outgoing
// connections: an API server that a test stops for a while must find its port
// free when it comes back.
const firstPort, lastPort = 20000, 32000

var ports = struct {
	sync.Mutex
	taken map[int]bool
}{taken: map[int]bool{}}

// FreePort returns a loopback port that nobody listens on and that this process
// has not handed out before.
func FreePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if ports.taken[port] {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		listener.Close()
		ports.taken[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no free port found between %d and %d on 127.0.0.1; stop what listens there", firstPort, lastPort)
}
