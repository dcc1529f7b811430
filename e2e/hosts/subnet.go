package hosts

import (
	"fmt"
	"net/netip"
	"regexp"
)

// The addresses of a lab: 10.88.<subnet>.0/24, the hub at .1, hosts from .11 on.
const (
	hubIndex       = 1
	firstHostIndex = 11
	lastHostIndex  = 250
)

func address(subnet, index int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 88, byte(subnet), byte(index)})
}

// pickSubnet returns the wanted subnet, or the lowest one that is free if wanted is negative. used maps subnets to the
// lab that has them.
func pickSubnet(wanted int, used map[int]string) (int, error) {
	if wanted > 255 {
		return 0, fmt.Errorf("subnet %d is not within 0 to 255", wanted)
	}
	if wanted >= 0 {
		if by, taken := used[wanted]; taken {
			return 0, fmt.Errorf("subnet 10.88.%d.0/24 is taken by lab %q", wanted, by)
		}
		return wanted, nil
	}
	for n := range 256 {
		if _, taken := used[n]; !taken {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no subnet of 10.88.0.0/16 is free: 256 labs exist")
}

// pickIndex returns the lowest host index that no host of the lab has.
func pickIndex(hosts map[string]HostRecord) (int, error) {
	used := map[int]bool{}
	for _, h := range hosts {
		used[h.Index] = true
	}
	for n := firstHostIndex; n <= lastHostIndex; n++ {
		if !used[n] {
			return n, nil
		}
	}
	return 0, fmt.Errorf("the lab is full: it has %d hosts", len(hosts))
}

// A name becomes part of a namespace, a machine and a host name. A machine's name is the lab's and the host's with a hyphen, and must not
// be longer than 64.
const (
	maxLabName  = 20
	maxHostName = 43
)

var nameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

func checkName(what, name string, length int) error {
	if !nameRE.MatchString(name) || len(name) > length {
		return fmt.Errorf("%s name %q: it must be 1 to %d of a-z, 0-9 and -, and begin and end with a letter or digit", what, name, length)
	}
	return nil
}
