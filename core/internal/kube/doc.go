// Package kube reaches clusters: one cached client per cluster with a transport of its own, watches of jobs and their
// pods, pod logs, and the classes of what can go wrong.
package kube
