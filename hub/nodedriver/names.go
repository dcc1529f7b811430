package nodedriver

import "encoding/json"

// namesWithIDs are the fields of drivers with names that they look up again before they remove a machine, although the field beside it has
// the ID that they have found: a machine whose image was deleted since could not be removed.
var namesWithIDs = map[string]map[string]string{
	"openstack": {"ImageName": "ImageId", "FlavorName": "FlavorId", "NetworkName": "NetworkId", "ServerGroupName": "ServerGroupId"},
}

// withoutNames returns the configuration of a machine without the names that have an ID.
func withoutNames(driver string, config []byte) []byte {
	fields := map[string]json.RawMessage{}
	if len(namesWithIDs[driver]) == 0 || json.Unmarshal(config, &fields) != nil {
		return config
	}
	for name, id := range namesWithIDs[driver] {
		var found string
		if json.Unmarshal(fields[id], &found) == nil && found != "" {
			delete(fields, name)
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return config
	}
	return out
}
