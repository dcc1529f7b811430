package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Everything that a specification names is found, in the global configuration and in those of selectors.
func TestReferences(t *testing.T) {
	spec := everything(t, k3s).Cluster.Spec
	spec.ETCD.S3 = &rkev1.ETCDSnapshotS3{CloudCredentialName: "cattle-global-data:cc-x"}
	spec.MachineGlobalConfig.Data["cloud-provider-config"] = "secret://fleet-default:cloud"
	spec.MachineSelectorConfig[0].Config.Data["cloud-provider-config"] = "secret://other"
	want := []Reference{
		{Kind: KindConfigMap, Name: "map"}, {Kind: KindSecret, Name: "auth"}, {Kind: KindSecret, Name: "basic"},
		{Kind: KindSecret, Name: "docker"},
		{Kind: KindSecret, Name: "files"}, {Kind: KindSecret, Name: "other"}, {Kind: KindSecret, Name: "tls"},
		{Kind: KindSecret, Namespace: "cattle-global-data", Name: "cc-x"}, {Kind: KindSecret, Namespace: "fleet-default", Name: "cloud"},
	}
	if diff := cmp.Diff(want, References(spec)); diff != "" {
		t.Error(diff)
	}
}
