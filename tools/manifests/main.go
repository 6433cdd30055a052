// Command manifests checks Kubernetes manifests without an API server: every field must be known
// and have the right type. It knows Jobs, Services, and the MPIJobs of Kubeflow's MPI operator.
//
//	go run . FILE…
//
// It is a module of its own, which keeps the library's go.mod small.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	failed := false
	for _, file := range os.Args[1:] {
		if err := check(file); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			failed = true
			continue
		}
		fmt.Println(file, "is well formed")
	}
	if failed {
		os.Exit(1)
	}
}

// separator separates the documents of a file.
var separator = regexp.MustCompile(`(?m)^---\s*$`)

func check(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, document := range separator.Split(string(text), -1) {
		if err := checkDocument([]byte(document)); err != nil {
			return err
		}
	}
	return nil
}

func checkDocument(document []byte) error {
	if len(bytes.TrimSpace(document)) == 0 {
		return errors.New("an empty document")
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 Service":
		return yaml.UnmarshalStrict(document, &corev1.Service{})
	case "batch/v1 Job":
		var job batchv1.Job
		if err := yaml.UnmarshalStrict(document, &job); err != nil {
			return err
		}
		if job.Spec.SuccessPolicy != nil && (job.Spec.CompletionMode == nil || *job.Spec.CompletionMode != batchv1.IndexedCompletion) {
			return errors.New("a successPolicy needs completionMode Indexed")
		}
		return checkPod(job.Spec.Template.Spec, true)
	case "kubeflow.org/v2beta1 MPIJob", "kubeflow.org/v1 MPIJob":
		var job mpiJob
		if err := yaml.UnmarshalStrict(document, &job); err != nil {
			return err
		}
		return job.check()
	}
	return fmt.Errorf("unknown kind %s of API version %s", kind.Kind, kind.APIVersion)
}

// mpiJob has the fields of the operator's definition that the manifests use.
type mpiJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SlotsPerWorker    *int32             `json:"slotsPerWorker"`
		MPIReplicaSpecs   map[string]replica `json:"mpiReplicaSpecs"`
		SSHAuthMountPath  *string            `json:"sshAuthMountPath"`  // since v2beta1
		MPIImplementation *string            `json:"mpiImplementation"` // since v2beta1
		CleanPodPolicy    *string            `json:"cleanPodPolicy"`    // in v1 only
		BackoffLimit      *int32             `json:"backoffLimit"`      // in v1 only
		RunPolicy         *struct {
			CleanPodPolicy string `json:"cleanPodPolicy"`
			BackoffLimit   *int32 `json:"backoffLimit"`
		} `json:"runPolicy"`
	} `json:"spec"`
}

type replica struct {
	Replicas      *int32                 `json:"replicas"`
	RestartPolicy string                 `json:"restartPolicy"`
	Template      corev1.PodTemplateSpec `json:"template"`
}

func (j *mpiJob) check() error {
	v1 := j.APIVersion == "kubeflow.org/v1"
	clean := ""
	switch {
	case v1 && j.Spec.CleanPodPolicy != nil:
		clean = *j.Spec.CleanPodPolicy
	case !v1 && j.Spec.RunPolicy != nil:
		clean = j.Spec.RunPolicy.CleanPodPolicy
	}
	launcher, worker := j.Spec.MPIReplicaSpecs["Launcher"], j.Spec.MPIReplicaSpecs["Worker"]
	switch {
	case len(j.Spec.MPIReplicaSpecs) != 2:
		return errors.New("mpiReplicaSpecs must have a Launcher and a Worker")
	case launcher.Replicas == nil || *launcher.Replicas != 1:
		return errors.New("the Launcher must have 1 replica")
	case worker.Replicas == nil || *worker.Replicas < 1:
		return errors.New("the Worker must have at least 1 replica")
	case j.Spec.SlotsPerWorker == nil || *j.Spec.SlotsPerWorker < 1:
		return errors.New("slotsPerWorker must be at least 1")
	case !slices.Contains([]string{"None", "Running", "All"}, clean):
		return fmt.Errorf("cleanPodPolicy is %q: it must be None, Running or All", clean)
	case !v1 && (j.Spec.CleanPodPolicy != nil || j.Spec.BackoffLimit != nil):
		return errors.New("cleanPodPolicy and backoffLimit belong into runPolicy")
	case v1 && (j.Spec.SSHAuthMountPath != nil || j.Spec.MPIImplementation != nil):
		return errors.New("v1 has neither sshAuthMountPath nor mpiImplementation")
	case j.Spec.MPIImplementation != nil && !slices.Contains([]string{"OpenMPI", "Intel", "MPICH"}, *j.Spec.MPIImplementation):
		return fmt.Errorf("mpiImplementation is %q: it must be OpenMPI, Intel or MPICH", *j.Spec.MPIImplementation)
	}
	for _, r := range []replica{launcher, worker} {
		if r.RestartPolicy != "Never" && r.RestartPolicy != "OnFailure" {
			return fmt.Errorf("restartPolicy is %q: it must be Never or OnFailure", r.RestartPolicy)
		}
		if err := checkPod(r.Template.Spec, false); err != nil {
			return err
		}
	}
	return nil
}

// checkPod checks what decoding does not. The operator sets the restart policy itself, so only the
// pods of Jobs need one.
func checkPod(pod corev1.PodSpec, restart bool) error {
	if len(pod.Containers) == 0 {
		return errors.New("a pod has no containers")
	}
	if restart && pod.RestartPolicy != corev1.RestartPolicyNever && pod.RestartPolicy != corev1.RestartPolicyOnFailure {
		return fmt.Errorf("restartPolicy is %q: it must be Never or OnFailure", pod.RestartPolicy)
	}
	for _, c := range pod.Containers {
		if c.Name == "" || c.Image == "" {
			return errors.New("a container has no name or no image")
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				return fmt.Errorf("there is no volume %q", m.Name)
			}
		}
	}
	return nil
}
