package fieldsupport

import (
	"maps"
	"reflect"
	"strings"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// support is what becomes of a field.
type support int

const (
	// The zero value says nothing, and is that of a field without a line.
	_ support = iota
	// actedOn fields have an effect, which may be an error for a wrong value.
	actedOn
	// refused fields are reported as a fault wherever they are set.
	refused
	// warned fields are taken and have no effect, which a condition says, or a warning of the API server.
	warned
	// setByHub fields are written by the hub, for others or for itself to read.
	setByHub
	// copied fields become those of another kind.
	copied
)

// entry is the line of a field. why says of what is not acted on why that is so.
type entry struct {
	support support
	why     string
}

// lines are by path below spec, with [] for the elements of a list or map. A line that is not actedOn is for all below it too.
type lines map[string]entry

// acted are the lines of fields that are acted on, given as paths between blanks.
func acted(paths string) lines {
	out := lines{}
	for _, path := range strings.Fields(paths) {
		out[path] = entry{support: actedOn}
	}
	return out
}

// all puts lines together.
func all(parts ...lines) lines {
	out := lines{}
	for _, part := range parts {
		maps.Copy(out, part)
	}
	return out
}

// under puts lines below a field.
func under(prefix string, in lines) lines {
	out := lines{}
	for path, e := range in {
		out[prefix+"."+path] = e
	}
	return out
}

// tables are by type of spec.
var tables = map[reflect.Type]lines{
	reflect.TypeFor[provisioningv1.ClusterSpec](): cluster,
	reflect.TypeFor[rkev1.RKEControlPlaneSpec]():  controlPlane,
	reflect.TypeFor[rkev1.RKEBootstrapSpec]():     all(acted("clusterName"), under("userdata", userdata)),
	reflect.TypeFor[rkev1.RKEClusterSpec]():       under("controlPlaneEndpoint", endpoint),
	reflect.TypeFor[rkev1.CustomMachineSpec]():    acted("providerID failureDomain"),
	reflect.TypeFor[rkev1.ETCDSnapshotSpec]():     {"clusterName": {setByHub, "an ETCDSnapshot is a record"}},
	reflect.TypeFor[operationv1.ETCDSnapshotSaveSpec](): acted(`clusterRef.apiVersion clusterRef.kind clusterRef.namespace clusterRef.name paused
		cancel ttl machineName args.name args.etcd_snapshot_compress args.etcd_snapshot_dir`),
	reflect.TypeFor[operationv1.CertificateRotationSpec](): acted(`clusterRef.apiVersion clusterRef.kind clusterRef.namespace clusterRef.name
		paused cancel ttl services`),
	reflect.TypeFor[operationv1.ETCDSnapshotRestoreSpec](): acted(`clusterRef.apiVersion clusterRef.kind clusterRef.namespace clusterRef.name
		paused cancel ttl args.name`),
	reflect.TypeFor[operationv1.ETCDSnapshotDeleteSpec](): acted(`clusterRef.apiVersion clusterRef.kind clusterRef.namespace clusterRef.name
		paused cancel ttl args.name`),
	reflect.TypeFor[operationv1.EncryptionKeyRotationSpec](): acted(`clusterRef.apiVersion clusterRef.kind clusterRef.namespace
		clusterRef.name paused cancel ttl`),
	reflect.TypeFor[operationv1.TokenRotationSpec](): acted(`clusterRef.apiVersion clusterRef.kind clusterRef.namespace clusterRef.name
		paused cancel ttl`),
	reflect.TypeFor[rkev1.RKEControlPlaneTemplateSpec](): template("RKEControlPlane"),
	reflect.TypeFor[rkev1.RKEClusterTemplateSpec]():      template("RKECluster"),
	reflect.TypeFor[rkev1.CustomMachineTemplateSpec]():   template("CustomMachine"),
	reflect.TypeFor[rkev1.RKEBootstrapTemplateSpec](): all(template("RKEBootstrap"),
		lines{"clusterName": {setByHub, "it names the Cluster that the template was made for"}}),
	reflect.TypeFor[managementv3.ClusterSpec](): {
		"displayName": {setByHub, fromCluster}, "description": {setByHub, fromCluster}, "internal": {setByHub, fromCluster},
		"fleetWorkspaceName": {setByHub, fromCluster}, "enableNetworkPolicy": {setByHub, fromCluster},
		"defaultPodSecurityAdmissionConfigurationTemplateName": {setByHub, fromCluster},
	},
	reflect.TypeFor[managementv3.ClusterRegistrationTokenSpec](): acted("clusterName ttl gracePeriod purpose roles maxUses made.id made.hash"),
	reflect.TypeFor[managementv3.NodeDriverSpec](): all(acted("displayName active builtin url checksum"), lines{
		"description": {warned, forRancherUI}, "uiUrl": {warned, forRancherUI}, "externalId": {warned, forRancherUI},
		"whitelistDomains": {warned, forRancherUI}, "addCloudCredential": {warned, forRancherUI},
	}),
	reflect.TypeFor[managementv3.TokenSpec](): all(acted("clusterName user.username user.groups expiresAt hash description"),
		lines{"user.uid": {setByHub, "it records for whom the token was made"}}),
	reflect.TypeFor[managementv3.TunnelAgentSpec](): all(acted("clusterName"),
		lines{"registrationTokenName": {setByHub, "it records what the agent was let in with"}}),
}

const forRancherUI = "only Rancher's user interface uses it"

const fromCluster = "a management Cluster is made by the hub for a Cluster, whose fields have lines of their own"

// template is the part of a template that Cluster API makes objects of.
func template(kind string) lines {
	return lines{"template": {copied, "Cluster API makes of it the metadata and spec of a " + kind + ", which has lines of its own"}}
}
