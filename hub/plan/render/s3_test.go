package render

import "testing"

// TestCredentialOfSeveralKinds: a Secret with the same field for several kinds of credentials gives the same plan each time. Another one
// would restart all machines with etcd.
func TestCredentialOfSeveralKinds(t *testing.T) {
	data := map[string][]byte{"accessKey": []byte("a"), "amazonec2credentialConfig-accessKey": []byte("b"),
		"s3credentialConfig-accessKey": []byte("c")}
	for range 100 {
		if got := credentialFields(data)["accessKey"]; got != "c" {
			t.Fatalf("got %q", got)
		}
	}
}
