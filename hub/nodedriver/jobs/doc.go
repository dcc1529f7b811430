// Package jobs runs node drivers in Kubernetes Jobs, for hubs that run in a cluster. All objects are in the namespace of the hub, where
// nobody else may look into Pods and Secrets: a Secret with the order, a Secret that the Job writes the state of the machine and the result
// to, and a ServiceAccount whose only right is to that second Secret. What a Job has written is the driver's, and is not trusted.
package jobs
