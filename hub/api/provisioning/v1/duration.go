package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Duration is a length of time such as 10m or 1h30m. The API server lets nothing in that cannot be read again, such as what is longer than
// 292 years: one Cluster that cannot be decoded would keep the hub from reading all of them.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]{1,5}([.][0-9]+)?h|[0-9]{1,7}([.][0-9]+)?m|[0-9]{1,9}([.][0-9]+)?(ns|us|ms|s))+)$')",message="must be a duration such as 10m or 1h30m"
type Duration struct {
	metav1.Duration `json:",inline"`
}
