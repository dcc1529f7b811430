package nodedriver

import "encoding/json"

// Address is an address of a machine: one that only its neighbours reach, or not.
type Address struct {
	Internal bool
	Address  string
}

// Addresses are those in the driver's configuration.
func (s *State) Addresses() []Address {
	var known struct{ IPAddress, PrivateIPAddress, IPv6Address string }
	if json.Unmarshal(s.Config(), &known) != nil {
		return nil
	}
	var out []Address
	add := func(address string, internal bool) {
		if address != "" && len(address) < 256 {
			out = append(out, Address{internal, address})
		}
	}
	add(known.PrivateIPAddress, true)
	add(known.IPAddress, known.PrivateIPAddress == "")
	add(known.IPv6Address, false)
	return out
}
