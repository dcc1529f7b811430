// Package references holds, as one table, every field of the hub's kinds by which a user names a Secret or ConfigMap, and the rule for it:
// what the object must be, and who must have agreed. The hub acts with its own rights on what such a field names, so that without a rule
// whoever may write a cluster could have any Secret written to a machine.
//
// It holds data and pure functions. hub/api/admission has the API server ask whether the user may read what he names, hub/plan/render
// checks the object when it makes plans, and docs/references.md is compared with the table by a test.
package references

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// The kinds of objects that are named.
const (
	// Secret is the kind Secret of core/v1.
	Secret = "Secret"
	// ConfigMap is the kind ConfigMap of core/v1.
	ConfigMap = "ConfigMap"
)

// Form is how a field names an object.
type Form string

// The forms.
const (
	// Name is a name in the namespace of the object that has the field.
	Name Form = "name"
	// Qualified is namespace:name, namespace/name, or a name in the same namespace.
	Qualified Form = "namespace:name"
	// URL is secret://namespace:name or secret://name; any other value is no reference.
	URL Form = "secret://namespace:name"
)

// Consent is what an object itself must say before a cluster gets it, beside the right of the user who names it.
type Consent string

// The consents.
const (
	// NoConsent is needed where the type tells what the object is for and it is in the cluster's namespace.
	NoConsent Consent = ""
	// ConsentElsewhere: an object of another namespace names the cluster, with its namespace, in AuthorizedSecretAnnotation.
	ConsentElsewhere Consent = "annotation " + rkev1.AuthorizedSecretAnnotation + ", in another namespace"
	// ConsentSecret: the object names the cluster in AuthorizedSecretAnnotation.
	ConsentSecret Consent = "annotation " + rkev1.AuthorizedSecretAnnotation
	// ConsentObject: the object names the cluster in AuthorizedObjectAnnotation.
	ConsentObject Consent = "annotation " + rkev1.AuthorizedObjectAnnotation
	// NeverRead: the hub does nothing with what the field names.
	NeverRead Consent = "never read"
)

// Rule is the rule for a field.
type Rule struct {
	// Of is the kind that alone has the field. Where it is empty, the field is one of a cluster's configuration, which all Holders have.
	Of string
	// Field is the path in the kind, or below the cluster's configuration; [] stands for any entry of a list, {} of a map.
	Field string
	// Kind of the object: Secret or ConfigMap.
	Kind string
	// Form of the reference.
	Form Form
	// Types a Secret may have; none means all that Forbidden does not refuse.
	Types []corev1.SecretType
	// Consent that the object must give.
	Consent Consent
}

// The rules. No other field of the hub's kinds refers to a Secret or ConfigMap.
var (
	RegistryAuth = Rule{Field: "registries.configs{}.authConfigSecretName", Kind: Secret, Form: Name,
		Types: []corev1.SecretType{rkev1.AuthConfigSecretType, corev1.SecretTypeBasicAuth, corev1.SecretTypeDockerConfigJson}}
	RegistryTLS = Rule{Field: "registries.configs{}.tlsSecretName", Kind: Secret, Form: Name,
		Types: []corev1.SecretType{corev1.SecretTypeTLS}}
	S3Credential = Rule{Field: "etcd.s3.cloudCredentialName", Kind: Secret, Form: Qualified,
		Types: []corev1.SecretType{corev1.SecretTypeOpaque, cloudCredentialType}, Consent: ConsentElsewhere}
	FileSecret    = Rule{Field: "machineSelectorFiles[].fileSources[].secret.name", Kind: Secret, Form: Name, Consent: ConsentObject}
	FileConfigMap = Rule{Field: "machineSelectorFiles[].fileSources[].configMap.name", Kind: ConfigMap, Form: Name, Consent: ConsentObject}
	CloudProvider = Rule{Field: "machineGlobalConfig.cloud-provider-config", Kind: Secret, Form: URL,
		Types: []corev1.SecretType{corev1.SecretTypeOpaque, cloudCredentialType}, Consent: ConsentSecret}
	SelectedCloudProvider = Rule{Field: "machineSelectorConfig[].config.cloud-provider-config", Kind: Secret, Form: URL,
		Types: CloudProvider.Types, Consent: ConsentSecret}
	ClusterCredential = Rule{Of: clusterKind, Field: "spec.cloudCredentialSecretName", Kind: Secret, Form: Qualified,
		Types: credentialTypes}
	PoolCredential = Rule{Of: clusterKind, Field: "spec.rkeConfig.machinePools[].cloudCredentialSecretName", Kind: Secret,
		Form: Qualified, Types: credentialTypes}
	MachineCredential = Rule{Of: machineKind, Field: "spec.common.cloudCredentialSecretName", Kind: Secret, Form: Qualified,
		Types: credentialTypes}
	TemplateCredential = Rule{Of: templateKind, Field: "spec.template.spec.common.cloudCredentialSecretName", Kind: Secret,
		Form: Qualified, Types: credentialTypes}
	SnapshotCredential = Rule{Of: snapshotKind, Field: "snapshotFile.s3.cloudCredentialName", Kind: Secret, Form: Qualified,
		Consent: NeverRead}
)

// cloudCredentialType is the type of credentials that Rancher's users make.
const cloudCredentialType corev1.SecretType = "provisioning.cattle.io/cloud-credential"

// Rules are all rules, as docs/references.md lists them.
var Rules = []Rule{
	RegistryAuth, RegistryTLS, S3Credential, FileSecret, FileConfigMap, CloudProvider, SelectedCloudProvider, ClusterCredential,
	PoolCredential, MachineCredential, TemplateCredential, SnapshotCredential,
}

// credentialTypes are those of the cloud credentials of node drivers.
var credentialTypes = []corev1.SecretType{corev1.SecretTypeOpaque, cloudCredentialType}

const (
	clusterKind  = "provisioning.cattle.io/v1 Cluster"
	machineKind  = "rke-machine.cattle.io/v1 <Driver>Machine"
	templateKind = "rke-machine.cattle.io/v1 <Driver>MachineTemplate"
	snapshotKind = "rke.cattle.io/v1 ETCDSnapshot"
)

// Holder is a kind that has the configuration of a cluster.
type Holder struct {
	// Kind is the API version and kind.
	Kind string
	// Config is the path of the configuration.
	Config string
}

// Holders are the kinds that have one.
var Holders = []Holder{
	{Kind: clusterKind, Config: "spec.rkeConfig"},
	{Kind: "rke.cattle.io/v1 RKEControlPlane", Config: "spec"},
	{Kind: "rke.cattle.io/v1 RKEControlPlaneTemplate", Config: "spec.template.spec"},
}

// Paths are the full paths of a rule's field, by kind.
func (r Rule) Paths() map[string]string {
	if r.Of != "" {
		return map[string]string{r.Of: r.Field}
	}
	out := map[string]string{}
	for _, holder := range Holders {
		out[holder.Kind] = holder.Config + "." + r.Field
	}
	return out
}

// Takes reports whether a Secret of a type will do. The API server calls Opaque what has no type.
func (r Rule) Takes(secretType string) bool {
	if secretType == "" {
		secretType = string(corev1.SecretTypeOpaque)
	}
	return len(r.Types) == 0 || slices.Contains(r.Types, corev1.SecretType(secretType))
}

// TypeNames lists the types that the rule takes as a sentence does.
func (r Rule) TypeNames() string {
	names := make([]string, len(r.Types))
	for i, t := range r.Types {
		names[i] = string(t)
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return strings.Join(names, "")
}
