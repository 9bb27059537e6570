package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"k8s.io/client-go/util/connrotation"
)

// ErrDenied is wrapped by the error of a dial to an address that the policy forbids.
var ErrDenied = errors.New("address is not allowed for clusters")

// forbidden are the networks that no cluster lives in: what answers there is the host's own surroundings, such as the
// metadata service of a cloud, which hands out credentials.
var forbidden = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),     // link-local; metadata of most clouds
	netip.MustParsePrefix("224.0.0.0/4"),        // multicast
	netip.MustParsePrefix("240.0.0.0/4"),        // reserved, broadcast
	netip.MustParsePrefix("100.100.100.200/32"), // metadata of Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),   // wire server of Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // metadata of Oracle Cloud
	netip.MustParsePrefix("::/128"),
	netip.MustParsePrefix("fe80::/10"),              // link-local
	netip.MustParsePrefix("ff00::/8"),               // multicast
	netip.MustParsePrefix("fd00:ec2::/32"),          // metadata of AWS
	netip.MustParsePrefix("fd20:ce::254/128"),       // metadata of Google Cloud
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // metadata of Oracle Cloud
}

// Forms of IPv6 that carry an IPv4 address, and where in the 16 bytes it stands.
var carriers = []struct {
	prefix netip.Prefix
	at     int
	invert bool
}{
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, false}, // translated
	{netip.MustParsePrefix("::/96"), 12, false},           // compatible
	{netip.MustParsePrefix("64:ff9b::/96"), 12, false},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12, false},  // NAT64, local
	{netip.MustParsePrefix("2002::/16"), 2, false},        // 6to4
	{netip.MustParsePrefix("2001::/32"), 12, true},        // Teredo
}

// checkAddr refuses an address when it, or the IPv4 address inside it, is forbidden and not in allow. Loopback is
// allowed: dev clusters live there.
func checkAddr(addr netip.Addr, allow []netip.Prefix) error {
	addr = addr.Unmap().WithZone("")
	forms := []netip.Addr{addr}
	if addr.Is6() && !addr.IsLoopback() && !addr.IsUnspecified() {
		raw := addr.As16()
		for _, c := range carriers {
			if !c.prefix.Contains(addr) {
				continue
			}
			v4 := [4]byte(raw[c.at : c.at+4])
			if c.invert {
				for i := range v4 {
					v4[i] = ^v4[i]
				}
			}
			forms = append(forms, netip.AddrFrom4(v4))
		}
	}
	for _, prefix := range allow {
		if prefix.Contains(addr) {
			return nil
		}
	}
	for _, form := range forms {
		for _, prefix := range forbidden {
			if prefix.Contains(form) {
				return fmt.Errorf("%w: %s lies in %s; the operator can allow it", ErrDenied, addr, prefix)
			}
		}
	}
	return nil
}

// checkProxied wraps a proxy function, nil included. A proxy dials what it is told, so a forbidden address in the URL itself
// is refused before; what a name means to the proxy is for the proxy to judge.
func checkProxied(proxy func(*http.Request) (*url.URL, error), allow []netip.Prefix) func(*http.Request) (*url.URL, error) {
	if proxy == nil {
		return nil
	}
	return func(req *http.Request) (*url.URL, error) {
		u, err := proxy(req)
		if err != nil || u == nil {
			return u, err
		}
		if addr, err := netip.ParseAddr(req.URL.Hostname()); err == nil {
			if err := checkAddr(addr, allow); err != nil {
				return nil, err
			}
		}
		return u, nil
	}
}

// newDialer returns the dial function of Dialer, and a tracker that can close all of its connections.
func newDialer(allow []netip.Prefix) (*connrotation.ConnectionTracker, connrotation.DialFunc) {
	tracker := connrotation.NewConnectionTracker()
	return tracker, connrotation.NewDialerWithTracker(Dialer(allow).DialContext, tracker).DialContext
}

// Dialer checks each address after the name has been resolved, so that no name can lead to a forbidden address.
func Dialer(allow []netip.Prefix) *net.Dialer {
	return &net.Dialer{
		Timeout: 10 * time.Second,
		// A peer that vanishes is noticed within about 25 s even on HTTP/1.1, which has no pings.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %s address %s", ErrDenied, network, address)
			}
			return checkAddr(at.Addr(), allow)
		},
	}
}
