package scripted

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"strings"
)

const (
	defaultDimensions = 256
	maxDimensions     = 4096
)

// embed serves POST /v1/embeddings. The vectors are word counts, so texts that share
// words are close to each other.
func (m *model) embed(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Input          texts  `json:"input"`
		Dimensions     int    `json:"dimensions"`
		EncodingFormat string `json:"encoding_format"`
	}
	q.Dimensions = defaultDimensions
	if err := decode(w, r, &q); err != nil {
		return err
	}
	if len(q.Input) == 0 {
		return invalid("input", "input must be a string or a list of strings.")
	}
	if q.Dimensions < 1 || q.Dimensions > maxDimensions {
		return invalid("dimensions", fmt.Sprintf("dimensions must be from 1 to %d.", maxDimensions))
	}
	if q.EncodingFormat != "" && q.EncodingFormat != "float" && q.EncodingFormat != "base64" {
		return invalid("encoding_format", "encoding_format must be float or base64.")
	}
	data := make([]any, len(q.Input))
	used := 0
	for i, text := range q.Input {
		vector := wordCounts(text, q.Dimensions)
		embedding := any(vector)
		if q.EncodingFormat == "base64" {
			var raw []byte
			for _, x := range vector {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
			embedding = raw // encoding/json encodes bytes as base64
		}
		data[i] = object{"object": "embedding", "index": i, "embedding": embedding}
		used += len(tokens(text))
	}
	return writeJSON(w, object{
		"object": "list", "data": data, "model": ModelID,
		"usage": map[string]int{"prompt_tokens": used, "total_tokens": used},
	})
}

// wordCounts hashes every word to a dimension, counts the words of each dimension,
// and scales the vector to length 1.
func wordCounts(text string, dimensions int) []float32 {
	vector := make([]float32, dimensions)
	for word := range strings.FieldsSeq(strings.ToLower(text)) {
		h := fnv.New64a()
		h.Write([]byte(word))
		vector[h.Sum64()%uint64(dimensions)]++
	}
	var sum float64
	for _, x := range vector {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		vector[0], sum = 1, 1 // even a text without words has a vector of length 1
	}
	for i := range vector {
		vector[i] /= float32(math.Sqrt(sum))
	}
	return vector
}
