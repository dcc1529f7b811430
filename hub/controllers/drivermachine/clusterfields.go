package drivermachine

import (
	"context"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/util/ownership"
)

// awsClusterTag begins the key of the tag by which the cloud provider of AWS knows the instances of a cluster.
const awsClusterTag = "kubernetes.io/cluster/"

// addClusterFields adds to the fields of a machine what its cloud has to know of the cluster, unless the user has written it: the tag that
// the cloud provider of AWS looks for, with the name of the management Cluster, and the name that Harvester labels virtual machines with.
func (m *machines) addClusterFields(ctx context.Context, cluster *clusterv1.Cluster, fields map[string]any) error {
	switch m.driver {
	case "amazonec2":
		keepSecurityGroup(fields)
		tags, _ := fields["tags"].(string)
		if strings.Contains(tags, awsClusterTag) {
			return nil
		}
		controlPlane, _, err := ownership.ControlPlane(ctx, m.Client, cluster)
		if err != nil || controlPlane == nil || controlPlane.ManagementName() == "" {
			return err
		}
		fields["tags"] = strings.TrimSuffix(awsClusterTag+controlPlane.ManagementName()+",owned,"+tags, ",")
	case "harvester":
		if name, _ := fields["clusterName"].(string); name == "" {
			fields["clusterName"] = cluster.Name
		}
	}
	return nil
}

// keepSecurityGroup has the driver of AWS add no rules to a security group of the user's own, and create none, unless the user has written
// what it is to do: its rules let everybody in. The group rancher-nodes is the driver's.
func keepSecurityGroup(fields map[string]any) {
	groups, _ := fields["securityGroup"].([]any)
	if fields["securityGroupReadonly"] == nil && len(groups) > 0 && groups[0] != "rancher-nodes" {
		fields["securityGroupReadonly"] = true
	}
}
