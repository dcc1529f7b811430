package nodedriver

import "encoding/json"

// Address is an address of a machine: one that only its neighbours reach, or not.
type Address struct {
	Internal bool
	Address  string
}

// Addresses are those in the driver's configuration. IPAddress is where the driver reaches the machine, which no interface of it needs to
// have: a floating address, or a public one that the cloud translates. As the address of the Node it would keep the distribution from
// starting. Only with digitalocean it is that where there is no private one. An IPv6 address is the machine's own, and k3s and RKE2 start
// in a cluster with IPv6 networks only if the Node has one.
func (s *State) Addresses() []Address {
	var known struct{ IPAddress, PrivateIPAddress, IPv6Address string }
	var h host
	if s == nil || json.Unmarshal(s.Files[configFile], &h) != nil || json.Unmarshal(h.Driver, &known) != nil {
		return nil
	}
	var out []Address
	add := func(address string, internal bool) {
		if address != "" && len(address) < 256 {
			out = append(out, Address{internal, address})
		}
	}
	add(known.PrivateIPAddress, true)
	add(known.IPAddress, known.PrivateIPAddress == "" && h.DriverName == "digitalocean")
	add(known.IPv6Address, true)
	return out
}
