// Command manifests reads manifests of Kubernetes as its API server would, as far as that can be done without one: every field has to be
// known, and of the right type. It knows Jobs, Services, and the MPIJobs of Kubeflow's MPI operator.
//
//	go run . FILE…
//
// It is a module of its own, so that the library's go.mod stays small.
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

// separator ends a document.
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
			return errors.New("a success policy is for indexed jobs")
		}
		return checkPod(job.Spec.Template.Spec, true)
	case "kubeflow.org/v2beta1 MPIJob", "kubeflow.org/v1 MPIJob":
		var job mpiJob
		if err := yaml.UnmarshalStrict(document, &job); err != nil {
			return err
		}
		return job.check()
	}
	return fmt.Errorf("unknown kind %s of %s", kind.Kind, kind.APIVersion)
}

// mpiJob has those of the fields of the operator's definition that the manifests use.
type mpiJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SlotsPerWorker    *int32             `json:"slotsPerWorker"`
		MPIReplicaSpecs   map[string]replica `json:"mpiReplicaSpecs"`
		SSHAuthMountPath  *string            `json:"sshAuthMountPath"`  // from v2beta1 on
		MPIImplementation *string            `json:"mpiImplementation"` // the same
		CleanPodPolicy    *string            `json:"cleanPodPolicy"`    // in version 1
		BackoffLimit      *int32             `json:"backoffLimit"`      // in version 1
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
		return errors.New("want a Launcher and a Worker")
	case launcher.Replicas == nil || *launcher.Replicas != 1:
		return errors.New("want one launcher")
	case worker.Replicas == nil || *worker.Replicas < 1:
		return errors.New("want workers")
	case j.Spec.SlotsPerWorker == nil || *j.Spec.SlotsPerWorker < 1:
		return errors.New("want slots")
	case !slices.Contains([]string{"None", "Running", "All"}, clean):
		return fmt.Errorf("cleanPodPolicy %q", clean)
	case !v1 && (j.Spec.CleanPodPolicy != nil || j.Spec.BackoffLimit != nil):
		return errors.New("cleanPodPolicy and backoffLimit are of the runPolicy")
	case v1 && (j.Spec.SSHAuthMountPath != nil || j.Spec.MPIImplementation != nil):
		return errors.New("version 1 knows nothing of ssh, and of one implementation only")
	case j.Spec.MPIImplementation != nil && !slices.Contains([]string{"OpenMPI", "Intel", "MPICH"}, *j.Spec.MPIImplementation):
		return fmt.Errorf("mpiImplementation %q", *j.Spec.MPIImplementation)
	}
	for _, r := range []replica{launcher, worker} {
		if r.RestartPolicy != "Never" && r.RestartPolicy != "OnFailure" {
			return fmt.Errorf("restartPolicy %q", r.RestartPolicy)
		}
		if err := checkPod(r.Template.Spec, false); err != nil {
			return err
		}
	}
	return nil
}

// checkPod looks at what decoding does not. The operator sets the restart policy itself.
func checkPod(pod corev1.PodSpec, restart bool) error {
	if len(pod.Containers) == 0 {
		return errors.New("a pod without containers")
	}
	if restart && pod.RestartPolicy != corev1.RestartPolicyNever && pod.RestartPolicy != corev1.RestartPolicyOnFailure {
		return fmt.Errorf("restartPolicy %q", pod.RestartPolicy)
	}
	for _, c := range pod.Containers {
		if c.Name == "" || c.Image == "" {
			return errors.New("a container without name or image")
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				return fmt.Errorf("no volume %q", m.Name)
			}
		}
	}
	return nil
}
