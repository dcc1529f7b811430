package hosts

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// CloseIncoming makes the host's network one that is left by connections but not entered, as behind an address translation: what comes
// from outside and belongs to no connection that was begun on the host is dropped without an answer. The hosts inside still come
// in. It is kept with the host's network, so also through reboots, until OpenIncoming.
func (h *Host) CloseIncoming(ctx context.Context, inside ...*Host) error {
	var addresses []netip.Addr
	for _, other := range inside {
		addresses = append(addresses, other.ip)
	}
	if err := h.nft(ctx, forgetRules+dropRules(addresses)); err != nil {
		return fmt.Errorf("closing host %s to incoming connections: %w", h.Name, err)
	}
	return nil
}

// OpenIncoming lets connections in again.
func (h *Host) OpenIncoming(ctx context.Context) error {
	if err := h.nft(ctx, forgetRules); err != nil {
		return fmt.Errorf("opening host %s to incoming connections: %w", h.Name, err)
	}
	return nil
}

// forgetRules removes what dropRules made, also if there is nothing.
const forgetRules = "add table inet lab\ndelete table inet lab\n"

// dropRules look at packets before routing, so that a Pod's address and a port of a Service are no way in either.
func dropRules(inside []netip.Addr) string {
	accept := ""
	if len(inside) > 0 {
		var all []string
		for _, address := range inside {
			all = append(all, address.String())
		}
		slices.Sort(all)
		accept = "\t\tip saddr { " + strings.Join(all, ", ") + " } accept\n"
	}
	return "table inet lab {\n\tchain incoming {\n\t\ttype filter hook prerouting priority mangle; policy accept;\n" +
		"\t\tiifname != \"host0\" accept\n\t\tct state established,related accept\n" + accept + "\t\tdrop\n\t}\n}\n"
}

// nft runs a program of nftables in the host's network, with the host's own nft: it need not be on, and the machine need not have one.
func (h *Host) nft(ctx context.Context, program string) error {
	_, err := runInput(ctx, program, "nsenter", "--net="+netnsPath(h.netns()), "--", "chroot", h.root(), "/usr/sbin/nft", "-f", "-")
	return err
}
