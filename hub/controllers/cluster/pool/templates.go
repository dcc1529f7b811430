package pool

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

// BootstrapTemplate returns the template of a pool's RKEBootstraps. Its name is derived from its content, so that a change of the user data
// is a new template, and replaces the machines.
func BootstrapTemplate(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool) (*rkev1.RKEBootstrapTemplate, error) {
	spec := rkev1.RKEBootstrapSpec{ClusterName: cluster.Name}
	if p.Userdata != nil {
		spec.Userdata = *p.Userdata
	}
	digest, err := hash(spec.Userdata)
	if err != nil {
		return nil, err
	}
	return &rkev1.RKEBootstrapTemplate{
		ObjectMeta: meta(cluster, p, rkev1.SafeConcat(Name(cluster.Name, p.Name), digest)),
		Spec:       rkev1.RKEBootstrapTemplateSpec{ClusterName: cluster.Name, Template: rkev1.RKEBootstrapTemplateResource{Spec: spec}},
	}, nil
}

// Clone returns a copy of the machine template that a pool refers to, with a name derived from its content. Machines are created from the
// copy: the user may change or delete the template at any time, and Cluster API replaces machines only for a template with a new name.
func Clone(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool,
	source *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind := source.GroupVersionKind()
	digest, err := contentHash(source)
	if err != nil {
		return nil, err
	}
	objectMeta := meta(cluster, p, rkev1.SafeConcat(Name(cluster.Name, p.Name), digest))
	clone := &unstructured.Unstructured{Object: map[string]any{}}
	clone.SetGroupVersionKind(kind)
	clone.SetNamespace(objectMeta.Namespace)
	clone.SetName(objectMeta.Name)
	objectMeta.Labels[rkev1.MachineTemplateHashLabel] = digest
	clone.SetLabels(objectMeta.Labels)
	clone.SetOwnerReferences(objectMeta.OwnerReferences)
	from := kind
	if driver := schema.DriverOfTemplate(kind.GroupKind()); driver != "" {
		from = schema.ConfigKind(driver)
	}
	clone.SetAnnotations(map[string]string{
		rkev1.ClonedFromGroupVersionAnnotation: from.GroupVersion().String(),
		rkev1.ClonedFromKindAnnotation:         from.Kind,
		rkev1.ClonedFromNameAnnotation:         source.GetName(),
		rkev1.ClonedFromRevisionAnnotation:     revision(source),
	})
	clone.Object["spec"] = source.DeepCopy().Object["spec"]
	return clone, nil
}

// revision changes with the content of an object, and not if another version of its provider adds defaults.
func revision(o metav1.Object) string {
	return string(o.GetUID()) + "/" + strconv.FormatInt(o.GetGeneration(), 10)
}

// contentHash is a hash of what machines of a template are made from.
func contentHash(template *unstructured.Unstructured) (string, error) {
	kind := template.GroupVersionKind()
	return hash([]any{kind.Group, kind.Kind, content(template)})
}

// SetUpToDate notes on a copy that it counts as one with the content of its source, and returns whether that is new. The revision of a
// source that is created again, as by "clusterctl move", is another one: the copy is up to date with its content then.
func SetUpToDate(clone, source *unstructured.Unstructured) (changed bool, err error) {
	digest, err := contentHash(source)
	if err != nil {
		return false, err
	}
	annotations := clone.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, value := range map[string]string{
		rkev1.ClonedFromRevisionAnnotation: revision(source), rkev1.ClonedFromContentAnnotation: digest,
	} {
		changed = changed || annotations[key] != value
		annotations[key] = value
	}
	clone.SetAnnotations(annotations)
	return changed, nil
}

// HasContent returns whether a copy has the very content of its source, so that nothing has to be noted for it to be up to date.
func HasContent(clone, source *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(content(clone), content(source))
}

// UpToDate returns whether a copy has the content of its source. A new version of a provider may add fields to both; that must not replace
// machines.
func UpToDate(clone, source *unstructured.Unstructured) bool {
	if clone.GroupVersionKind().GroupKind() != source.GroupVersionKind().GroupKind() {
		return false
	}
	annotations := clone.GetAnnotations()
	if annotations[rkev1.ClonedFromRevisionAnnotation] == revision(source) || HasContent(clone, source) {
		return true
	}
	digest, err := contentHash(source)
	return err == nil && annotations[rkev1.ClonedFromContentAnnotation] == digest
}

// Ref refers to an object as MachineDeployments do.
func Ref(kind runtimeschema.GroupKind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: name}
}

// TemplateRef identifies a machine template of a pool. Its string form is Kind.group/name.
type TemplateRef struct {
	runtimeschema.GroupKind
	Name string
}

// RefOf returns the TemplateRef of a reference in a MachineDeployment or MachineSet.
func RefOf(ref clusterv1.ContractVersionedObjectReference) TemplateRef {
	return TemplateRef{runtimeschema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind}, ref.Name}
}

func (r TemplateRef) String() string { return fmt.Sprintf("%s/%s", r.GroupKind, r.Name) }

// formatRefs returns references as a comma-separated list, for the annotation of a MachineDeployment.
func formatRefs(refs []TemplateRef) string {
	texts := make([]string, len(refs))
	for i, ref := range refs {
		texts[i] = ref.String()
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ",")
}

// ParseRefs returns the machine templates in the annotation of a MachineDeployment.
func ParseRefs(md *clusterv1.MachineDeployment) []TemplateRef {
	var refs []TemplateRef
	for text := range strings.SplitSeq(md.Annotations[rkev1.MachineTemplatesAnnotation], ",") {
		kind, name, ok := strings.Cut(text, "/")
		if ok && name != "" {
			refs = append(refs, TemplateRef{runtimeschema.ParseGroupKind(kind), name})
		}
	}
	return refs
}
