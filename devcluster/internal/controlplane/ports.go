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

// reserved holds, for each port that was handed out, the UDP port of the same
// number. Nothing speaks UDP here: it is how supervisors that start at the same
// time keep out of each other's way, and the kernel ends it with the process.
var reserved = struct {
	sync.Mutex
	ports []net.PacketConn
}{}

// FreePort returns a loopback port on which nobody listens and which no
// devcluster of this machine has handed out.
func FreePort() (int, error) {
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		reservation, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			reservation.Close()
			continue
		}
		listener.Close()
		reserved.Lock()
		reserved.ports = append(reserved.ports, reservation)
		reserved.Unlock()
		return port, nil
	}
	return 0, fmt.Errorf("no free port found between %d and %d on 127.0.0.1; stop what listens there", firstPort, lastPort)
}
