package nodedriver

import (
	"testing"

	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

// TestUserDataField has the flags of drivers in their order: of rancher-machine, and of Harvester's driver, which takes the path of a file
// and a text that it adds to it.
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
		if field := userDataField(fields); field != nil {
			got = field.Name
		}
		if got != tc.want {
			t.Errorf("%s: the field is %q, want %q", driver, got, tc.want)
		}
	}
}
