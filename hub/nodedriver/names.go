package nodedriver

import "encoding/json"

// lookedUp are the fields of drivers with names that they look up before they remove a machine, although the removal needs nothing of what
// these name: a machine whose image was deleted since, or that was not created since a name is wrong, could not be removed.
var lookedUp = map[string][]string{"openstack": {"ImageName", "FlavorName", "NetworkName", "ServerGroupName"}}

// withoutNames returns the configuration of a machine that is to be removed without these names, and without the pool of its floating
// address if it has no address.
func withoutNames(driver string, config []byte) []byte {
	fields := map[string]json.RawMessage{}
	if len(lookedUp[driver]) == 0 || json.Unmarshal(config, &fields) != nil {
		return config
	}
	for _, name := range lookedUp[driver] {
		delete(fields, name)
	}
	var address string
	if json.Unmarshal(fields["IPAddress"], &address) != nil || address == "" {
		delete(fields, "FloatingIpPool")
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return config
	}
	return out
}
