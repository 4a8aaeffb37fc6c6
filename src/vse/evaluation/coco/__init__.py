"""Evaluation tasks on COCO: image and caption ids, CxC, ECCV Caption."""
