package nodedriver

import "testing"

// TestIsGone: which answers of published drivers to a removal say that the machine is gone. With the others it runs on, and nobody would
// know of it.
func TestIsGone(t *testing.T) {
	s := &State{Name: "one-all-a", Files: map[string][]byte{
		configFile: []byte(`{"Driver":{"MachineName":"one-all-a","MachineId":"4213","DropletID":77,"ClientID":"d7b6","Network":["VM Network"]}}`),
	}}
	const (
		azure = `azure.BearerAuthorizer#WithAuthorization: Failed to refresh the Token for request to https://management.azure.com/` +
			`virtualMachines/one-all-a: StatusCode=400 -- Original Error: adal: Refresh request failed. Status Code = '400'. Response body: ` +
			`{"error":"unauthorized_client","error_description":"AADSTS700016: Application with identifier 'd7b6' was not found in the ` +
			`directory 'Example'."}`
		google = `Delete "https://compute.googleapis.com/compute/v1/projects/p/zones/z/instances/one-all-a": oauth2: cannot fetch token: ` +
			`400 Bad Request Response: {"error":"invalid_grant","error_description":"Invalid grant: account not found"}`
		nutanix = `error launching deleting VM one-all-a: error: {"code": 404, "kind": "vm", "message_list": [{"message": "vm : 4213 does not ` +
			`exist.", "reason": "ENTITY_NOT_FOUND"}], "state": "ERROR"}`
		otcLeft = "2 errors occurred:\n\t* failed to delete instance: Forbidden\n\t* failed to delete key pair: Resource not found\n\n"
		otcGone = "2 errors occurred:\n\t* failed to delete instance: Resource not found\n\t* failed to delete security group: in use\n\n"
	)
	for _, tt := range []struct {
		answer string
		want   bool
	}{
		{"Resource not found", true},
		{`{"errors": [{"reason": "Not found"}]}`, true},
		{"instance i-1 not found", true},
		{"vm 'one-all-a' not found", true},
		{"vm '/DC0/vm/servers/one-all-a' not found", true},
		{`virtualmachines.kubevirt.io "one-all-a" not found`, true},
		{`{"message":"virtualmachines.kubevirt.io \"one-all-a\" not found"}`, true},
		{"server '4213' was not found", true},
		{`droplet "77" not found`, true},
		{"dropletID is invalid because cannot be less than 1", true},
		{"diskID is invalid because cannot be less than 1", false},
		{"value cannot be empty for field InstanceId in path", true},
		{"value cannot be empty for field SubnetId in path", false},
		{nutanix, true},
		{otcGone, true},
		{otcLeft, false},
		{"1 error occurred:\n\t* failed to wait for instance status after deletion: A timeout occurred\n\n", false},
		{"1 error occurred:\n\t* failed to delete key pair: Resource not found\n\n", true}, // its instance is deleted before
		{"network 'VM Network' not found", false},
		{"datacenter '/DC0' not found", false},
		{"vm 'one-all-a' not found; network 'VM Network' not found", false},
		{"AADSTS90002: Tenant '0b1c' not found.", false},
		{azure, false},
		{google, false},
		{"the quota is exceeded", false},
	} {
		if got := s.isGone(tt.answer); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.answer, got, tt.want)
		}
	}
	if s.Name = "authentication-all-a"; !s.isGone("vm 'authentication-all-a' not found") {
		t.Error("the name of a machine is taken for an error of its credential")
	}
}
