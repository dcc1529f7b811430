package nodedriver

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

// TestUserDataField has the flags of drivers in their order: of rancher-machine, and of Harvester's driver, which takes the path of a file
// and a text that it adds to it. A driver with a flag for the text and another one for the path gets the path by that.
func TestUserDataField(t *testing.T) {
	for driver, tc := range map[string]struct {
		flags []string
		want  string
	}{
		"amazonec2":     {[]string{"amazonec2-region", "amazonec2-userdata"}, "userdata"},
		"azure":         {[]string{"azure-custom-data"}, "customData"},
		"openstack":     {[]string{"openstack-user-data-file"}, "userDataFile"},
		"vmwarevsphere": {[]string{"vmwarevsphere-cloudinit", "vmwarevsphere-cloud-config"}, "cloudConfig"},
		"harvester":     {[]string{"harvester-cloud-config", "harvester-user-data", "harvester-network-data"}, "cloudConfig"},
		"hetzner":       {[]string{"hetzner-user-data", "hetzner-user-data-file"}, "userDataFile"},
		"cloudscale":    {[]string{"cloudscale-userdata", "cloudscale-userdatafile"}, "userdatafile"},
		"linode":        {[]string{"linode-region"}, ""},
	} {
		var flags []plugin.Flag
		for _, name := range tc.flags {
			flags = append(flags, plugin.Flag{Name: name, Kind: plugin.String, Default: ""})
		}
		fields, err := schema.Fields(driver, flags, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if field, _ := userDataFields(fields); field != nil {
			got = field.Name
		}
		if got != tc.want {
			t.Errorf("%s: the field is %q, want %q", driver, got, tc.want)
		}
	}
}

// TestUserDataFromFile: a driver takes its user data from a file and from nowhere else, and what the user wrote for it is not lost.
func TestUserDataFromFile(t *testing.T) {
	const text, file = "#cloud-config", "/home/user-data"
	for name, tc := range map[string]struct {
		given, want map[string]any
	}{
		"hetzner": {
			map[string]any{"hetzner-user-data": text, "hetzner-user-data-from-file": true, "hetzner-user-data-file": ""},
			map[string]any{"hetzner-user-data": "", "hetzner-user-data-from-file": false, "hetzner-user-data-file": file},
		},
		"hetzner before version 4": {
			map[string]any{"hetzner-user-data": text, "hetzner-user-data-from-file": false},
			map[string]any{"hetzner-user-data": file, "hetzner-user-data-from-file": true},
		},
		"vultr": {
			map[string]any{"vultr-cloud-init-user-data": text, "vultr-cloud-init-from-file": false, "vultr-enabled-ipv6": true},
			map[string]any{"vultr-cloud-init-user-data": file, "vultr-cloud-init-from-file": true, "vultr-enabled-ipv6": true},
		},
		"openstack": {
			map[string]any{"openstack-user-data-file": text}, map[string]any{"openstack-user-data-file": file},
		},
		"linode": {map[string]any{"linode-region": "eu"}, map[string]any{"linode-region": "eu"}},
	} {
		var fields []schema.Field
		for _, flag := range slices.Sorted(maps.Keys(tc.given)) {
			field := schema.Field{Name: flag, Flag: plugin.Flag{Name: flag, Default: ""}}
			if _, isBool := tc.given[flag].(bool); isBool {
				field.Flag.Default = false
			}
			fields = append(fields, field)
		}
		users := fromFile(fields, tc.given, file)
		if diff := cmp.Diff(tc.want, tc.given); diff != "" || (users == text) != (name != "linode") {
			t.Errorf("%s: %q, (-want +got):\n%s", name, users, diff)
		}
	}
}
