package rollout

import (
	"hash/crc32"
	"slices"
)

// JoinURL says where a machine joins the cluster; empty for the init node, which joins nothing. While there is nowhere to join, it stays as
// it was, empty for a new machine. Servers join the init node. Workers keep to the control plane machine that they know. Otherwise they are
// spread over those of their own failure domain, or over all where that has none, in a way that depends on nothing but the worker's UID and
// the number of servers.
func JoinURL(machines []Machine, m Machine, uid string) string {
	if m.Init {
		return ""
	}
	if m.Server() {
		if i := initNode(machines); i != nil {
			return i.JoinURL
		}
		return m.JoinedTo
	}
	var urls, near []string
	for _, server := range machines {
		if !server.ControlPlane || server.Deleting || server.JoinURL == "" {
			continue
		}
		urls = append(urls, server.JoinURL)
		if server.FailureDomain == m.FailureDomain {
			near = append(near, server.JoinURL)
		}
	}
	switch {
	case len(urls) == 0:
		return m.JoinedTo
	case slices.Contains(urls, m.JoinedTo):
		return m.JoinedTo
	}
	if len(near) > 0 {
		urls = near
	}
	slices.Sort(urls)
	return urls[uint64(crc32.ChecksumIEEE([]byte(uid)))*uint64(len(urls))>>32]
}
