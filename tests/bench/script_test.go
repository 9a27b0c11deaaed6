package main

import "testing"

func TestBulkTasksAreOfTheirSize(t *testing.T) {
	for name, b := range map[string][]byte{"prompt": bulkPrompt().request, "answer": bulkAnswer().want} {
		if n := len(b); n < bulkBytes*97/100 || n > bulkBytes*103/100 { // texts differ in length
			t.Errorf("%s: %d bytes instead of about %d", name, n, bulkBytes)
		}
	}
}

func TestSmallTaskIsAKilobyte(t *testing.T) {
	if n := len(smallTask().want); n < 900 || n > 1200 {
		t.Errorf("the answer has %d bytes", n)
	}
}
